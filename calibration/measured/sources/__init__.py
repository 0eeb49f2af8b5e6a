"""What the files of known measured runs do not say of themselves, a YAML file a source."""
