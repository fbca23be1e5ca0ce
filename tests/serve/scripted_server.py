"""A server whose judge takes its time. Run by test_live_server.py, which stops it with a signal."""

from serve_fakes import app_of, judge_of, open_engine

from serve.listen import listen

engine = open_engine(delay_s=0.5)
app = app_of(judge_of(engine))
listen(app, host="127.0.0.1", port=0, drain_s=5, drain=app.state.judging)
