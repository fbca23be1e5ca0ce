"""The routes, one file a family. Each translates a wire format onto `serve.judging.JudgingService`."""
