"""The server of `tkdebug mcp`: agents ask about runs by the Model Context Protocol.

Responsible for tools as one table (`tools`), the processes that answer them (`children`), and the
bound of each answer (`answers`). Invariants: what is asked for is done by commands of tkdebug in
processes of their own, so that an answer has the command that replays it; all of these end with the
server; no name of a file leads out of the folder; only this package imports the SDK.
"""
