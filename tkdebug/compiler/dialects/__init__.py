"""What each op is called and made of, by dialect: `tt.load` is `tkdebug.compiler.dialects.tt.Load`.

Declarations only: type rules, verifiers and evaluation are in the op table
(`tkdebug.compiler.ops`).
"""
