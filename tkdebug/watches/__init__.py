"""Watches: which values of kernels are looked at, and what is kept of them.

`places` says what a watch is and reads what people write, `conditions` is the language of its
conditions, `records` what is kept of a value, `in_force` which watches there are in this process.
How a value is looked at is elsewhere: the front end finds it, the interpreter and native code
summarise it.
"""
