"""What to do next, in the words of a client: tools to call, not commands to type."""

from holdfast.core.model import Actor


class Tools:
    """`says_session`: whether the client names its session with each call, and so could name another."""

    def __init__(self, *, says_session: bool) -> None:
        self._says_session = says_session

    def resume(self, who: Actor) -> str:
        return "call resume"

    def start(self, who: Actor, job_id: int) -> str:
        return f"call claim_job with id {job_id}"

    def explain(self, job_id: int) -> str:
        return f"call explain with id {job_id}"

    def look(self, job_id: int) -> str:
        return f"call get_job with id {job_id}"

    def attempt(self, number: int) -> str:
        return f"give attempt {number}"

    def session(self, name: str) -> str | None:
        return f"give session {name!r}" if self._says_session else None
