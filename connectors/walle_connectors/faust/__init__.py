"""Walle's features for programs of Faust, by its public interface; needs the extra ``cloud``.

``records`` gives Faust's users features as typed records, for agents, tables and windows of their
own.
"""
