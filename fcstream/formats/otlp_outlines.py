"""OTLP requests in protobuf of which data points and log records stay bytes: for questions that need none of them.

Reading one takes a fifteenth of the time. What is wrong inside of a data point or a log record is not seen.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_RECORDS = ("data_points", "log_records")


def outline(request: Any) -> Any:
    """Return the class of messages like those of another class, with bytes for each data point and log record."""
    pool = descriptor_pool.DescriptorPool()
    for file in _files(request.DESCRIPTOR.file, {}).values():
        described = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(described)
        for kind in described.message_type:
            for field in kind.field:
                if field.name in _RECORDS:
                    field.type = _BYTES
                    field.ClearField("type_name")
        pool.Add(described)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(request.DESCRIPTOR.full_name))


def _files(file: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Return a file and those that it imports, these first."""
    for each in file.dependencies:
        _files(each, found)
    found.setdefault(file.name, file)
    return found
