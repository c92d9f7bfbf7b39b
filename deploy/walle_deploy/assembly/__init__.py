"""Puts the parts together: where one part's port meets another part."""
