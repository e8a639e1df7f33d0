//! Bodies of web pages, decompressed within a bound.

use std::io::{self, Write};

use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, HeaderMap};

use crate::upstream::error::{FailureKind, UpstreamError};

/// Longest part of a foreign header that an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 40;

/// Text that grows up to a bound.
struct Bounded {
    out: Vec<u8>,
    bytes_max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len().saturating_add(bytes.len()) > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decoder of a body in pieces. Neither the body nor its decompressed text may be longer than the bound.
pub(super) struct PageDecoder {
    form: DecoderForm,
    read: usize,
    bytes_max: usize,
}

enum DecoderForm {
    Plain(Bounded),
    Gzip(Box<MultiGzDecoder<Bounded>>),
    Deflate(Box<ZlibDecoder<Bounded>>),
}

impl PageDecoder {
    /// Creates the decoder for an answer with these headers.
    ///
    /// # Errors
    /// [`FailureKind::Invalid`] for an encoding that was not asked for.
    pub(super) fn new(headers: &HeaderMap, bytes_max: usize) -> Result<PageDecoder, UpstreamError> {
        let bounded = Bounded { out: Vec::new(), bytes_max };
        let mut given = headers.get_all(CONTENT_ENCODING).iter();
        let form = match (given.next(), given.next()) {
            (None, _) => DecoderForm::Plain(bounded),
            (Some(one), None) => {
                match one.to_str().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => DecoderForm::Plain(bounded),
                    "gzip" | "x-gzip" => DecoderForm::Gzip(Box::new(MultiGzDecoder::new(bounded))),
                    "deflate" => DecoderForm::Deflate(Box::new(ZlibDecoder::new(bounded))),
                    other => return Err(unwanted(other)),
                }
            }
            (Some(_), Some(_)) => return Err(unwanted("several")),
        };
        Ok(PageDecoder { form, read: 0, bytes_max })
    }

    /// Adds the next piece. Returns the size of the decompressed text so far.
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`] over the bound, [`FailureKind::Invalid`] for what cannot be decompressed.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<usize, UpstreamError> {
        self.read = self.read.saturating_add(piece.len());
        if self.read > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        let written = match &mut self.form {
            DecoderForm::Plain(out) => out.write_all(piece),
            DecoderForm::Gzip(decoder) => decoder.write_all(piece),
            DecoderForm::Deflate(decoder) => decoder.write_all(piece),
        };
        written.map_err(|error| self.fault(&error))?;
        Ok(match &self.form {
            DecoderForm::Plain(out) => out.out.len(),
            DecoderForm::Gzip(decoder) => decoder.get_ref().out.len(),
            DecoderForm::Deflate(decoder) => decoder.get_ref().out.len(),
        })
    }

    /// Returns the whole text.
    ///
    /// # Errors
    /// As [`PageDecoder::push`]; a compressed body without its end is [`FailureKind::Invalid`].
    pub(super) fn finish(self) -> Result<Vec<u8>, UpstreamError> {
        let PageDecoder { form, read, bytes_max } = self;
        // some servers name an encoding and send nothing, with a redirect for example
        let ended = match form {
            DecoderForm::Plain(out) => Ok(out),
            DecoderForm::Gzip(_) | DecoderForm::Deflate(_) if read == 0 => return Ok(Vec::new()),
            DecoderForm::Gzip(decoder) => decoder.finish(),
            DecoderForm::Deflate(decoder) => decoder.finish(),
        };
        ended.map(|bounded| bounded.out).map_err(|error| fault(&error, bytes_max))
    }

    fn fault(&self, error: &io::Error) -> UpstreamError {
        fault(error, self.bytes_max)
    }
}

fn fault(error: &io::Error, bytes_max: usize) -> UpstreamError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => too_large(bytes_max),
        _ => UpstreamError::invalid("its body cannot be decompressed"),
    }
}

fn too_large(bytes_max: usize) -> UpstreamError {
    UpstreamError::sent(FailureKind::TooLarge, format!("over {} KiB", bytes_max / 1024))
}

fn unwanted(encoding: &str) -> UpstreamError {
    let shown: String = encoding.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    UpstreamError::invalid(format!(
        "it is compressed with '{shown}', and the gateway asks for gzip alone: its site has to honour Accept-Encoding"
    ))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use http::HeaderValue;

    use super::*;

    const MAX: usize = 100_000;

    fn headers(encoding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !encoding.is_empty() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap());
        }
        headers
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn read(encoding: &str, body: &[u8], piece: usize) -> Result<Vec<u8>, UpstreamError> {
        let mut decoder = PageDecoder::new(&headers(encoding), MAX)?;
        for piece in body.chunks(piece) {
            decoder.push(piece)?;
        }
        decoder.finish()
    }

    #[test]
    fn bodies_are_decompressed_in_pieces() {
        let text = b"<p>some text</p>".repeat(100);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let zlib = zlib.finish().unwrap();
        for piece in [1, 7, 4096] {
            assert_eq!(read("", &text, piece).unwrap(), text);
            assert_eq!(read("gzip", &gzip(&text), piece).unwrap(), text);
            assert_eq!(read("X-GZIP", &gzip(&text), piece).unwrap(), text);
            assert_eq!(read("deflate", &zlib, piece).unwrap(), text);
        }
        assert!(read("gzip", b"", 1).unwrap().is_empty());
    }

    #[test]
    fn bombs_end_at_the_bound() {
        let bomb = gzip(&vec![b'a'; 100 * MAX]);
        assert!(bomb.len() < MAX, "{}", bomb.len());
        for (encoding, body) in [("gzip", bomb), ("", vec![b'a'; MAX + 1])] {
            let error = read(encoding, &body, 4096).unwrap_err();
            assert_eq!(error.kind, FailureKind::TooLarge, "{encoding}");
        }
        assert_eq!(read("gzip", &gzip(&vec![b'a'; MAX]), 4096).unwrap().len(), MAX);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let whole = gzip(b"text");
        let (cut, wrong) = (whole.get(..whole.len() - 4).unwrap(), [b"no gzip at all".as_slice()].concat());
        for (encoding, body) in [("gzip", cut), ("gzip", &wrong), ("br", b"x"), ("gzip, gzip", &whole)] {
            let error = read(encoding, body, 4096).unwrap_err();
            assert_eq!(error.kind, FailureKind::Invalid, "{encoding}");
        }
        let brotli = read("br", b"x", 4096).unwrap_err();
        assert!(brotli.detail.contains("'br'") && brotli.detail.contains("gzip alone"), "{brotli}");
    }
}
