"""What a sample of runs, or of requests of one run, can say: intervals, differences, warm-up."""
