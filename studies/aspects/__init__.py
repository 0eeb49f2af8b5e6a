"""What there is to say of a run, a file a topic: what it was priced at, what bound it, how good its answers are, who gave up."""
