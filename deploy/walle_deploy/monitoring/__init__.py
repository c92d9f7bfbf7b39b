"""Health of task versions on the fleet: counts from reports, and alarms."""
