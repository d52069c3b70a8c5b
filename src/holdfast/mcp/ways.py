"""What to do next, in the words of a client: tools to call, not commands to type."""

from holdfast.core.model import Actor


class Tools:
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

    def session(self, name: str) -> str:
        return f"give session {name!r}"
