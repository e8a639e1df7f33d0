//! Encodings of entries, byte for byte as browsers write them.

use std::borrow::Cow;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::super::charset::PageEncoding;
use super::entries::FormEntry;

/// Encodes entries as `application/x-www-form-urlencoded`.
pub(super) fn url_encoded(entries: &[FormEntry], encoding: PageEncoding) -> String {
    let mut out = String::new();
    for entry in entries {
        if !out.is_empty() {
            out.push('&');
        }
        escape(&mut out, &encoding.encode(&with_line_ends(&entry.name)));
        out.push('=');
        escape(&mut out, &encoding.encode(&with_line_ends(&entry.value)));
    }
    out
}

fn escape(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b' ' => out.push('+'),
            b'*' | b'-' | b'.' | b'_' => out.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(*byte)),
            // a text takes what is written to it
            byte => write!(out, "%{byte:02X}").unwrap_or_default(),
        }
    }
}

/// Encodes entries as `text/plain`.
pub(super) fn plain(entries: &[FormEntry], encoding: PageEncoding) -> Vec<u8> {
    let lines = entries
        .iter()
        .map(|entry| format!("{}={}\r\n", with_line_ends(&entry.name), with_line_ends(&entry.value)));
    encoding.encode(&lines.collect::<String>())
}

/// Encodes entries as `multipart/form-data`; returns the boundary and the body.
///
/// The boundary is a digest of the entries, so that no value can contain it by design.
pub(super) fn multipart(entries: &[FormEntry], encoding: PageEncoding) -> (String, Vec<u8>) {
    let mut parts = Vec::new();
    for entry in entries {
        let name = with_line_ends(&entry.name).replace('\r', "%0D").replace('\n', "%0A").replace('"', "%22");
        let mut head = b"Content-Disposition: form-data; name=\"".to_vec();
        head.extend(encoding.encode(&name));
        head.push(b'"');
        if entry.is_file {
            head.extend(b"; filename=\"\"\r\nContent-Type: application/octet-stream");
        }
        head.extend(b"\r\n\r\n");
        head.extend(encoding.encode(&with_line_ends(&entry.value)));
        head.extend(b"\r\n");
        parts.push(head);
    }
    let mut digest = Sha256::new();
    for part in &parts {
        digest.update(part);
    }
    let mut boundary = "----mcpproxy".to_owned();
    for byte in digest.finalize().iter().take(16) {
        write!(boundary, "{byte:02x}").unwrap_or_default();
    }
    let mut body = Vec::new();
    for part in parts {
        body.extend(format!("--{boundary}\r\n").bytes());
        body.extend(part);
    }
    body.extend(format!("--{boundary}--\r\n").bytes());
    (boundary, body)
}

/// Returns a text in which each end of line is CR LF.
fn with_line_ends(text: &str) -> Cow<'_, str> {
    if text.contains(['\r', '\n']) {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n"))
    } else {
        Cow::Borrowed(text)
    }
}
