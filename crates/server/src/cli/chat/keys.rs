//! What each key does.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{ConnectionStatus, Model};

/// What a key asks of the connection or the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Send(String),
    Typing,
    ToggleOffline,
    Quit,
}

/// Applies a key; `page` is the height of what is shown of the conversation.
pub(super) fn press(model: &mut Model, key: KeyEvent, page: usize) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        KeyCode::Char('c') if control => return leave(model),
        KeyCode::Esc => return leave(model),
        KeyCode::Char('o') if control => return Some(Wish::ToggleOffline),
        KeyCode::Char('w') if control => model.input.delete_word(),
        KeyCode::Char('u') if control => model.input.delete_to_start(),
        KeyCode::Char('a') if control => model.input.home(),
        KeyCode::Char('e') if control => model.input.end(),
        KeyCode::Enter if alt => return write(model, "\n"),
        KeyCode::Enter => {
            if model.input.text().trim().is_empty() {
                return None;
            }
            return Some(Wish::Send(model.input.take()));
        }
        KeyCode::Backspace => model.input.backspace(),
        KeyCode::Delete => model.input.delete(),
        KeyCode::Left => model.input.left(),
        KeyCode::Right => model.input.right(),
        // On an empty line they move through the conversation, where nothing else could be meant.
        KeyCode::Home if model.input.is_empty() => model.scroll = usize::MAX,
        KeyCode::End if model.input.is_empty() => model.scroll = 0,
        KeyCode::Home => model.input.home(),
        KeyCode::End => model.input.end(),
        KeyCode::PageUp => model.scroll = model.scroll.saturating_add(page.saturating_sub(1).max(1)),
        KeyCode::PageDown => model.scroll = model.scroll.saturating_sub(page.saturating_sub(1).max(1)),
        KeyCode::Up => model.scroll = model.scroll.saturating_add(1),
        KeyCode::Down => model.scroll = model.scroll.saturating_sub(1),
        KeyCode::Char(c) if !control && !alt => return write(model, c.encode_utf8(&mut [0; 4])),
        _ => {}
    }
    None
}

/// Puts text at the cursor, typed or pasted.
pub(super) fn write(model: &mut Model, text: &str) -> Option<Wish> {
    model.input.insert(text);
    model.tell_typing().then_some(Wish::Typing)
}

fn leave(model: &mut Model) -> Option<Wish> {
    let waiting = model.waiting();
    if waiting == 0 || model.warned {
        return Some(Wish::Quit);
    }
    model.warned = true;
    let (what, them) = if waiting == 1 { ("message is", "it") } else { ("messages are", "them") };
    let how =
        if model.link == ConnectionStatus::Online { "wait a moment, or" } else { "go online first, or" };
    model.remark(format!("{waiting} {what} not sent yet: {how} press again to leave and lose {them}"));
    None
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::{ConversationId, UserId};

    use super::*;

    fn model() -> Model {
        let (me, peer) = (UserId::new("alice").unwrap(), UserId::new("bob").unwrap());
        let conversation = ConversationId::between(&me, &peer).unwrap();
        Model::new(me, peer, conversation, 10_000)
    }

    fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    fn hit(model: &mut Model, code: KeyCode) -> Option<Wish> {
        press(model, key(code, KeyModifiers::NONE), 10)
    }

    #[test]
    fn typing_is_told_at_most_every_three_seconds() {
        let mut model = model();
        model.link = ConnectionStatus::Online;
        assert_eq!(hit(&mut model, KeyCode::Char('h')), Some(Wish::Typing));
        assert_eq!(hit(&mut model, KeyCode::Char('i')), None);
        model.now_ms += 3_000;
        assert_eq!(hit(&mut model, KeyCode::Char('!')), Some(Wish::Typing));
        assert_eq!(hit(&mut model, KeyCode::Enter), Some(Wish::Send("hi!".into())));
        assert_eq!(hit(&mut model, KeyCode::Enter), None, "there is nothing left to send");
    }

    #[test]
    fn leaving_with_unsent_messages_asks_first() {
        let mut model = model();
        model.posted("m-1".parse().unwrap(), "hello");
        assert_eq!(hit(&mut model, KeyCode::Esc), None);
        assert!(model.notice().is_some_and(|notice| notice.starts_with("1 message is not sent")));
        assert_eq!(press(&mut model, key(KeyCode::Char('c'), KeyModifiers::CONTROL), 10), Some(Wish::Quit));
    }

    #[test]
    fn control_keys_edit_instead_of_writing() {
        let mut model = model();
        model.input.insert("one two");
        press(&mut model, key(KeyCode::Char('w'), KeyModifiers::CONTROL), 10);
        assert_eq!(model.input.text(), "one ");
        press(&mut model, key(KeyCode::Char('u'), KeyModifiers::CONTROL), 10);
        assert!(model.input.is_empty());
        assert_eq!(
            press(&mut model, key(KeyCode::Char('o'), KeyModifiers::CONTROL), 10),
            Some(Wish::ToggleOffline)
        );
    }
}
