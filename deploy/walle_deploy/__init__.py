"""The task deployment platform: from git to a fleet of running devices, safely."""
