"""An invented formulary: drugs that exist nowhere, a corpus about them, questions, and right and subtly wrong reasoning.

Nobody can know these drugs, so only a search can tell right from wrong: whatever a judge gains here, it gains by looking up.
`docs/closed-world.md` says what that measures and what it does not.
"""
