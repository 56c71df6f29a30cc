from __future__ import annotations

import pytest

from inference_fleet.tunnel.yamux.wire import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    PING,
    RST,
    SYN,
    WINDOW,
    Breach,
    Header,
    ProtocolError,
    pack,
    unpack,
)


def test_a_header_is_twelve_bytes_in_network_order() -> None:
    assert pack(DATA, FIN, 0x01020304, 0x05060708) == bytes.fromhex("00 00 0004 01020304 05060708")
    assert pack(WINDOW, SYN, 1, 0) == bytes.fromhex("00 01 0001 00000001 00000000")
    assert pack(PING, ACK, 0, 0xDEADBEEF) == bytes.fromhex("00 02 0002 00000000 deadbeef")
    assert pack(GO_AWAY, 0, 0, 2) == bytes.fromhex("00 03 0000 00000000 00000002")


@pytest.mark.parametrize(
    ("kind", "flags", "stream", "length"),
    [
        (DATA, 0, 1, 2**32 - 1),
        (DATA, SYN | FIN, 7, 5),
        (DATA, ACK | RST, 7, 0),
        (WINDOW, ACK, 2, 0),
        (WINDOW, FIN | ACK, 2**32 - 1, 9),
        (PING, SYN, 0, 77),
        (GO_AWAY, 0, 0, 1),
    ],
)
def test_a_legal_header_reads_back_as_it_was_written(kind: int, flags: int, stream: int, length: int) -> None:
    assert unpack(pack(kind, flags, stream, length)) == Header(kind, flags, stream, length)


@pytest.mark.parametrize(
    ("raw", "breach"),
    [
        pytest.param("01 00 0000 00000001 00000000", Breach.VERSION, id="version 1"),
        pytest.param("ff 00 0000 00000001 00000000", Breach.VERSION, id="version 255"),
        pytest.param("00 04 0000 00000001 00000000", Breach.FRAME_TYPE, id="type 4"),
        pytest.param("00 ff 0000 00000000 00000000", Breach.FRAME_TYPE, id="type 255"),
        pytest.param("00 00 0010 00000001 00000000", Breach.FLAGS, id="flag 0x10"),
        pytest.param("00 01 8000 00000001 00000000", Breach.FLAGS, id="flag 0x8000"),
        pytest.param("00 02 0011 00000000 00000000", Breach.FLAGS, id="flag 0x10 on a ping"),
        pytest.param("00 00 0003 00000001 00000000", Breach.FLAGS, id="syn and ack"),
        pytest.param("00 01 0009 00000001 00000000", Breach.FLAGS, id="syn and rst"),
        pytest.param("00 01 000c 00000001 00000000", Breach.FLAGS, id="fin and rst"),
        pytest.param("00 02 0000 00000000 00000001", Breach.FLAGS, id="ping without a flag"),
        pytest.param("00 02 0003 00000000 00000001", Breach.FLAGS, id="ping with syn and ack"),
        pytest.param("00 02 0004 00000000 00000001", Breach.FLAGS, id="ping with fin"),
        pytest.param("00 03 0001 00000000 00000000", Breach.FLAGS, id="go-away with syn"),
        pytest.param("00 00 0000 00000000 00000005", Breach.STREAM_ID, id="data on the session"),
        pytest.param("00 01 0000 00000000 00000005", Breach.STREAM_ID, id="window of the session"),
        pytest.param("00 02 0001 00000001 00000005", Breach.STREAM_ID, id="ping on a stream"),
        pytest.param("00 03 0000 00000002 00000000", Breach.STREAM_ID, id="go-away on a stream"),
        pytest.param("00 03 0000 00000000 00000003", Breach.GO_AWAY_CODE, id="go-away code 3"),
        pytest.param("00 03 0000 00000000 ffffffff", Breach.GO_AWAY_CODE, id="go-away code 2^32-1"),
        pytest.param("00 00 0008 00000001 00000001", Breach.RESET_LENGTH, id="reset with data"),
        pytest.param("00 01 0008 00000001 00000001", Breach.RESET_LENGTH, id="reset with window"),
    ],
)
def test_every_broken_field_is_refused_by_name(raw: str, breach: Breach) -> None:
    with pytest.raises(ProtocolError) as caught:
        unpack(bytes.fromhex(raw))
    assert caught.value.breach is breach
    assert str(caught.value).startswith(breach.value)
