"""How versions of tasks do on the fleet: counted from reports, watched by alarms."""
