from tests.verify.files import *
import io
from holdfast.verify import *
def test_it(export):
    v = verify_file(io.BytesIO(export.body), Wishes(trusted=parse_trusted(export.trusted)))
    print(v)
    open("/tmp/rich.jsonl","wb").write(export.body)
    assert v.intact
