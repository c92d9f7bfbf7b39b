"""The platform's shared types: names, profiles, pushes, releases."""
