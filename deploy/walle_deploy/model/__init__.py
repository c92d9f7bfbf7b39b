"""What the parts of the platform say to each other: names, profiles, pushes, releases."""
