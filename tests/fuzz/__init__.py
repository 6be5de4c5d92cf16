"""A standing net: random networks, recipes, command lines and files, each checked against what picojoule promises.

`make fuzz` runs thousands of cases, the tests of this folder a few hundred of them. A case is a kind and a whole
number, so each can be run again by itself: `make fuzz KIND=networks ONLY=123`.
"""
