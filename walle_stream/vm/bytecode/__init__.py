"""The verifier of bytecode that our own compiler did not make: ``check.check_code``."""
