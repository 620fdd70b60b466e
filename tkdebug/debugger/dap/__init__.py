"""The Debug Adapter Protocol: editors over the debugger's engine."""
