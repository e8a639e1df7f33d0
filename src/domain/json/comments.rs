//! JSON as editors write it: with comments, and with commas after last members.

/// Part of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Json,
    Literal,
    LineComment,
    BlockComment,
}

/// Returns a text with blanks in place of its comments, of commas before closing brackets, and of a byte order mark.
///
/// The result has the length of `text`, so that a place in the one is the same place in the other. Whether it is JSON is for
/// [`super::check`] to say.
pub fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut part, mut comma) = (Part::Json, None);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (part, c, rest.peek()) {
            (Part::Json, '/', Some('/')) => part = Part::LineComment,
            (Part::Json, '/', Some('*')) => {
                part = Part::BlockComment;
                out.push(' ');
                rest.next();
            }
            (Part::BlockComment, '*', Some('/')) => {
                part = Part::Json;
                out.push(' ');
                rest.next();
            }
            (Part::LineComment, '\n', _) => part = Part::Json,
            (Part::Json, '"', _) => part = Part::Literal,
            (Part::Literal, '"', _) => part = Part::Json,
            _ => {}
        }
        let is_blank = c == '\u{feff}' && out.is_empty()
            || matches!(part, Part::LineComment | Part::BlockComment) && c != '\n'
            || c == '*' && out.ends_with(' ') && part == Part::Json;
        if is_blank {
            out.extend(std::iter::repeat_n(' ', c.len_utf8()));
            continue;
        }
        match (part, c) {
            (Part::Json, ',') => comma = Some(out.len()),
            (Part::Json, '}' | ']') => {
                if let Some(at) = comma.take() {
                    out.replace_range(at..=at, " ");
                }
            }
            (Part::Json | Part::Literal, c) if !c.is_whitespace() => comma = None,
            _ => {}
        }
        out.push(c);
        if part == Part::Literal && c == '\\' {
            out.extend(rest.next());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_last_commas_are_blanks() {
        for (text, plain) in [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("{\"a\": 1, // é, {\n\"b\": 2}", "{\"a\": 1,         \n\"b\": 2}"),
            ("{/*/ \" */\"a\": [1, /* x\n */ ], }", "{        \"a\": [1      \n    ]  }"),
            (r#"{"a": "// \" /* ,]", "b": ","}"#, r#"{"a": "// \" /* ,]", "b": ","}"#),
            ("\u{feff}{}", "   {}"),
            ("{} //", "{}   "),
            ("{} /*", "{}   "),
        ] {
            let found = without_comments(text);
            assert_eq!((found.as_str(), found.len()), (plain, text.len()), "{text}");
        }
        // a second comma is a fault, as it is without a bracket after it
        assert!(super::super::check(&without_comments("[1,,]")).is_err());
    }
}
