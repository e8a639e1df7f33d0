use proptest::prelude::*;

use super::*;

fn name(page: &[u8], content_type: Option<&str>) -> &'static str {
    decode_page(page, content_type).encoding.name()
}

#[test]
fn the_first_that_names_an_encoding_wins() {
    for (page, content_type, encoding) in [
        (&b"<p>x"[..], None, "UTF-8"),
        ("<p>é".as_bytes(), None, "UTF-8"),
        (b"<p>\xe9", None, "windows-1252"),
        (b"<p>\xe9", Some("text/html; charset=ISO-8859-2"), "ISO-8859-2"),
        (b"<p>\xe9", Some("text/html; charset=\"koi8-r\"; x=y"), "KOI8-R"),
        (b"<p>", Some("text/html; charset=nonsense"), "UTF-8"),
        (b"\xef\xbb\xbf<p>", Some("text/html; charset=latin1"), "UTF-8"),
        (b"\xff\xfe<\0p\0", None, "UTF-16LE"),
        (b"<meta charset=gbk>", None, "GBK"),
        (b"<meta charset=gbk>", Some("text/html;charset=utf-8"), "UTF-8"),
        (
            b"<META name=x content=y/><meta HTTP-EQUIV='Content-Type' content='a; charset=shift_jis'>",
            None,
            "Shift_JIS",
        ),
        (b"<meta content='text/html; charset=shift_jis'>", None, "UTF-8"),
        (b"<!-- <meta charset=gbk> --><meta charset=big5>", None, "Big5"),
        (b"<!--><meta charset=gbk>", None, "GBK"),
        (b"<a title='<meta charset=gbk>'><meta/charset=euc-kr>", None, "EUC-KR"),
        (b"<!doctype html><?x ?></p><meta charset=utf-16le>", None, "UTF-8"),
        (b"<metadata charset=gbk><meta charset=x-user-defined>", None, "windows-1252"),
        (b"<meta charset=nonsense><meta charset=gbk>", None, "GBK"),
    ] {
        assert_eq!(name(page, content_type), encoding, "{}", page.escape_ascii());
    }
    let far = format!("{}<meta charset=gbk>", " ".repeat(SCAN_BYTES_MAX));
    assert_eq!(name(far.as_bytes(), None), "UTF-8");
}

#[test]
fn texts_are_decoded_and_encoded() {
    assert_eq!(decode_page(b"caf\xe9 \x80", None).text, "café €");
    assert_eq!(decode_page(b"\xef\xbb\xbfx\xff", None).text, "x\u{fffd}");
    let latin = PageEncoding::labelled("latin1").unwrap();
    assert_eq!((latin.name(), latin.encode("é→")), ("windows-1252", b"\xe9&#8594;".to_vec()));
    assert_eq!(PageEncoding::labelled("utf-16").unwrap().of_submission(), PageEncoding::UTF_8);
    assert_eq!(PageEncoding::labelled("nonsense"), None);
}

proptest! {
    #[test]
    fn any_bytes_become_text(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        header in proptest::option::of(".{0,40}"),
    ) {
        let page = decode_page(&bytes, header.as_deref());
        prop_assert!(page.text.len() <= 3 * bytes.len());
    }

    #[test]
    fn markup_around_a_meta_does_not_confuse(before in "(<[!/?a-z]{0,2}[ a-z=>'-]{0,9}){0,6}") {
        decode_page(format!("{before}<meta charset=gbk>").as_bytes(), None);
    }
}
