"""RabbitMQ: streams, queues (AMQP), connection."""
