"""Walle's features for Faust programs, through Faust's public interface; needs the extra ``cloud``.

``records`` gives features as typed records, for agents, tables and windows of a Faust program.
"""
