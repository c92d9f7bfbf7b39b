"""Server-rendered pages for operators: releases, their evidence, one stop button."""
