"""What a process tells about itself: metrics, structured logs, trace context."""
