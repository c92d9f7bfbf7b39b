"""Sub-commands of `walle` for the deployment platform; each imports its needs when it runs."""
