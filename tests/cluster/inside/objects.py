"""Print the names of all objects in the tests' bucket."""

from obstore.store import S3Store


def main() -> None:
    """Print them, one a line."""
    for batch in S3Store("walle-tests").list():
        for each in batch:
            print(each["path"])


if __name__ == "__main__":
    main()
