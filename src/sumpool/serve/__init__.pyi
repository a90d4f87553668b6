from .app import build_app as build_app
from .client import Client as Client
from .client import ClientError as ClientError
from .server import serve as serve
from .uploads import Limits as Limits
