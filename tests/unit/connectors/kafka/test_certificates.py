"""When certificates expire, read from the files alone; these two were made for the test."""

from datetime import UTC, datetime

import pytest

from walle_connectors.certificates import certificate_end
from walle_connectors.kafka import doctor

# openssl req -x509 -newkey ec ..., the key was thrown away
UNTIL_2036 = """-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUYpdjtwyY029O7UEaxr9NS66HYoMwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKd2FsbGUtdGVzdDAeFw0yNjExMjIwMTM3MTFaFw0zNjExMTkw
MTM3MTFaMBUxEzARBgNVBAMMCndhbGxlLXRlc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQrPh7AV4XP/EEcQ7Je9eY8x0yhH4o5NSqS86gDNdeEDiOAQ+XQ/LZP
wnRW3fJkj0PSAO66bUN6YO9lxTGI8ST0o1MwUTAdBgNVHQ4EFgQU4gcLkJGKskt+
nvrV4+uoHzoTYpwwHwYDVR0jBBgwFoAU4gcLkJGKskt+nvrV4+uoHzoTYpwwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiA7rduwab5cj0BrvHLdKKqX
Z16xXSUopjT85FQg0kkc/AIhANjSjWXcSFSE4VnQhedEjqAkuxPirZhdEwaCZZtG
Qm84
-----END CERTIFICATE-----
"""
# beyond 2050 the time has another layout
UNTIL_2101 = """-----BEGIN CERTIFICATE-----
MIIBgjCCASegAwIBAgIUCDRjT2B4b2g091ZeAZXhxnz3lJUwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKd2FsbGUtdGVzdDAgFw0yNjExMjIwMTM3MTFaGA8yMTAxMTEy
OTAxMzcxMVowFTETMBEGA1UEAwwKd2FsbGUtdGVzdDBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABN282pkR4W1dfwyNLPWzvF5SXBqlj77xE8fMjY/unrjzhAxqLmUB
AyuFlajzkpLmXQzuwBpY1ObP4e+FJTzDQDajUzBRMB0GA1UdDgQWBBQ1qXEX2gXZ
xqqKMFqadXEPJ8+E9DAfBgNVHSMEGDAWgBQ1qXEX2gXZxqqKMFqadXEPJ8+E9DAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQDYhD9+NWMvmUj/SY/A
oYrtOCWd3LWlVEO8Ar6vTIbIZgIhAJH5nBoI7iQm2iRqcDW9VQK1Af+CNjs+jDnG
2+A0WdmD
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (UNTIL_2036, "2036-11-19T01:37:11+00:00"),
        (UNTIL_2101, "2101-11-29T01:37:11+00:00"),
        ("a comment\n" + UNTIL_2036 + UNTIL_2101, "2036-11-19T01:37:11+00:00"),
    ],
)
def test_the_first_certificate_counts(tmp_path, text, ends):
    (tmp_path / "c.pem").write_text(text)
    assert certificate_end(tmp_path / "c.pem") == datetime.fromisoformat(ends)


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_is_named(tmp_path, text):
    (tmp_path / "c.pem").write_text(text)
    with pytest.raises(ValueError, match=r"c\.pem holds"):
        certificate_end(tmp_path / "c.pem")


@pytest.mark.parametrize(
    ("now", "level", "words"),
    [
        ("2026-01-01", "ok", "is valid until 2036"),
        ("2036-11-10", "warn", "days: make a new one"),
        ("2040-01-01", "fail", "has expired on 2036"),
    ],
)
def test_doctor_warns_before_and_fails_behind_the_end(monkeypatch, now, level, words):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.fromisoformat(now).replace(tzinfo=tz)

    ends = datetime(2036, 11, 19, tzinfo=UTC)
    monkeypatch.setattr(doctor, "datetime", Clock)
    check = doctor._expiry("tls", "it", ends)
    assert (check.level, words in check.text) == (level, True)
