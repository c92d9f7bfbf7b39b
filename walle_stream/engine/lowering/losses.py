"""Losses and optimiser steps."""
