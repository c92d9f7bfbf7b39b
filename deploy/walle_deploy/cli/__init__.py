"""The platform's sub-commands of ``walle``; what they need is imported when they run."""
