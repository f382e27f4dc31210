"""The worker: queued jobs, webhook deliveries and periodic tasks."""
