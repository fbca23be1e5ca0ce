"""Long batches: kept on the disk, judged beside the requests of those who wait, continued after a restart."""
