use SensitiveCategory::{Credentials, Irreversible, Legal, Payment, Personal, Transaction};

use super::*;

fn of_field(kind: ControlKind, autocomplete: &str, texts: &[&str]) -> Vec<SensitiveCategory> {
    let mut found = Sensitivities::default();
    let tokens: Vec<String> = autocomplete.split_ascii_whitespace().map(str::to_owned).collect();
    found.add_field(SensitiveField { kind, autocomplete: &tokens }, texts.iter().copied());
    found.into_categories()
}

fn of_deed(text: &str) -> Vec<SensitiveCategory> {
    let mut found = Sensitivities::default();
    found.add_posting_button(text);
    found.into_categories()
}

#[test]
fn terms_are_folded_and_written_once() {
    let mut seen = BTreeSet::new();
    for (category, spot, list) in TERMS {
        for text in list.split(',').map(str::trim) {
            let bare = text.trim_start_matches('=').trim_end_matches('*');
            assert_eq!(words(bare).join(" "), bare, "{text}: a term that no text can have");
            assert!(bare.split(' ').count() <= TERM_WORDS_MAX, "{text}");
            assert!(seen.insert((category, spot as u8, list, text)), "{text} is there twice");
        }
    }
}

#[test]
fn fields_in_five_languages() {
    for (text, expected) in [
        ("Card number", Payment),
        ("cardNumber", Payment),
        ("Kreditkartennummer", Payment),
        ("Numéro de carte", Payment),
        ("Número de tarjeta", Payment),
        ("Numero della carta", Payment),
        ("IBAN", Payment),
        ("user_password", Credentials),
        ("Kennwort:", Credentials),
        ("Mot de passe", Credentials),
        ("Contraseña", Credentials),
        ("Codice di sicurezza", Credentials),
        ("One-time code", Credentials),
        ("Name", Personal),
        ("Straße und Hausnummer", Personal),
        ("Prénom", Personal),
        ("Dirección", Personal),
        ("Codice fiscale", Personal),
        ("Date of birth", Personal),
        ("dateOfBirth", Personal),
    ] {
        assert_eq!(of_field(ControlKind::Text, "", &[text]), [expected], "{text}");
    }
    for text in [
        "q",
        "Search",
        "Product name",
        "From",
        "Destination",
        "Check-in",
        "Suche",
        "Guests",
        "Color",
        "IP",
        "Comment",
    ] {
        assert_eq!(of_field(ControlKind::Text, "", &[text]), [], "{text}");
    }
}

#[test]
fn words_that_are_parted_or_cased_to_hide_are_found() {
    for (text, expected) in [
        ("Card\u{ad} num\u{ad}ber", Payment),
        ("Pass\u{200b}word", Credentials),
        ("passWord", Credentials),
        ("PassWord", Credentials),
        ("2FA", Credentials),
        ("Ｐａｓｓｗｏｒｄ", Credentials),
        ("I\u{2060}B\u{feff}AN", Payment),
    ] {
        assert_eq!(of_field(ControlKind::Text, "", &[text]), [expected], "{text}");
    }
    assert_eq!(of_deed("pAy"), of_deed("pay"));
    let padded = format!("{}{}Password", " \n".repeat(2000), "\u{200b}".repeat(2000));
    assert_eq!(of_field(ControlKind::Text, "", &[&padded]), [Credentials], "what nobody sees fills no bound");
}

#[test]
fn types_and_autofill_tokens() {
    assert_eq!(of_field(ControlKind::Password, "", &["x"]), [Credentials]);
    assert_eq!(of_field(ControlKind::Email, "", &[]), [Personal]);
    assert_eq!(of_field(ControlKind::Text, "section-a billing cc-number", &[]), [Payment]);
    assert_eq!(of_field(ControlKind::Text, "one-time-code", &[]), [Credentials]);
    assert_eq!(of_field(ControlKind::Text, "shipping street-address", &[]), [Personal]);
    assert_eq!(of_field(ControlKind::Text, "off on organization language", &[]), []);
}

#[test]
fn boxes_that_agree_to_something() {
    for text in [
        "I agree to the terms of service",
        "Ich akzeptiere die AGB",
        "Ich stimme zu",
        "J’accepte les conditions générales",
        "Acepto los términos",
        "Accetto l'informativa sulla privacy",
    ] {
        assert_eq!(of_field(ControlKind::Checkbox, "", &[text]), [Legal], "{text}");
    }
    assert_eq!(of_field(ControlKind::Text, "", &["Terms to search for"]), []);
    assert_eq!(of_field(ControlKind::Checkbox, "", &["Only in stock"]), []);
    let mut found = Sensitivities::default();
    found.add_text("By clicking, you agree to our Terms of Service.");
    assert_eq!(found.into_categories(), [Legal]);
}

#[test]
fn deeds_in_five_languages() {
    for (text, expected) in [
        ("Buy now", vec![Transaction]),
        ("Place your order", vec![Transaction, Irreversible]),
        ("Start free trial", vec![Transaction]),
        ("Zahlungspflichtig bestellen", vec![Transaction]),
        ("Payer", vec![Transaction]),
        ("Realizar pedido", vec![Transaction]),
        ("Acquista ora", vec![Transaction]),
        ("Delete my account", vec![Irreversible]),
        ("Konto löschen", vec![Irreversible]),
        ("Résilier", vec![Irreversible]),
        ("Darse de baja", vec![Irreversible]),
        ("Elimina", vec![Irreversible]),
        ("Nachricht senden", vec![Irreversible]),
        ("Send", vec![Irreversible]),
        ("Se connecter", vec![Credentials]),
        ("complete_purchase", vec![Transaction]),
        ("Search", vec![]),
        ("Suchen", vec![]),
        ("Filter", vec![]),
        ("Submit", vec![]),
        ("Next", vec![]),
        ("Subscribe", vec![]),
    ] {
        assert_eq!(of_deed(text), expected, "{text}");
    }
    let mut found = Sensitivities::default();
    found.add_deed("Send");
    found.add_functions("search purchase login");
    assert_eq!(found.into_categories(), [Transaction, Credentials]);
}

#[test]
fn many_words_cost_little() {
    let text = "card ".repeat(100_000);
    let began = std::time::Instant::now();
    for _ in 0..2000 {
        assert_eq!(of_field(ControlKind::Text, "", &[&text]), []);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
}
