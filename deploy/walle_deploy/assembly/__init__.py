"""Assembly of the platform: connects ports of one part with other parts."""
