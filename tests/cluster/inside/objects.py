"""Print the names of all objects in a bucket of an S3 server, as JSON of variables says: VARIABLES BUCKET."""

import json
import os
import sys

from obstore.store import S3Store


def main() -> None:
    """Print them, one a line."""
    os.environ |= json.loads(sys.argv[1])
    for batch in S3Store(sys.argv[2]).list():
        for each in batch:
            print(each["path"])


if __name__ == "__main__":
    main()
