"""The service: the methods of the control plane over gRPC. Needs the extra `service`."""

from zapdb.errors import MissingExtra

try:
    import google.protobuf
    import grpc
    import jwt
except ModuleNotFoundError as missing:
    raise MissingExtra.named("service", str(missing.name)) from missing

del google, grpc, jwt
