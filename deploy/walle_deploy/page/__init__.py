"""Pages for operators, made on the server: releases, their evidence, one stop button."""
