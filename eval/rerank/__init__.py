"""Files of samples put in order by a judge: read in a stream, judged in waves, ranked on the disk."""
