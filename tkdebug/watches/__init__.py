"""Watches: values of kernels that are looked at, and their records.

`places` defines a watch and reads its text, `conditions` is the language of its conditions,
`records` has the records of values, `in_force` the watches of this process. Values are looked at
elsewhere: the front end finds them, the interpreter and native code summarise them.
"""
