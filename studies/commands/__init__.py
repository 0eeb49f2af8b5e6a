"""The commands of `servetwin`, a file for each family: their options, and what is done with them. `cli` puts them together."""
