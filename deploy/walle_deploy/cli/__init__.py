"""Sub-commands of `walle` for the deployment platform; each imports what it needs when it runs."""
