"""What a user can mend: exceptions whose message is one line."""


class ConfigError(ValueError):
    """Of the configuration: names the file, the key, the value and the choices."""
