"""YAML definitions: models, loading with places, overrides, schemas."""
