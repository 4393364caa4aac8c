"""RabbitMQ: streams that can be read again, queues (AMQP) that forget, and their connections.

Here belongs whatever knows the clients rstream and pika. Nothing outside of this folder imports them.
"""
