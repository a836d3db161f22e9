//! The wire text of every request. During an upgrade processes of two versions talk to each other, so these texts must
//! not change.

use bluetick_chat::ClusterRequest;

/// One of each kind, as version 0.1.0 writes it.
const TEXTS: &[&str] = &[
    r#"{"Send":{"user":"alice","session":"00000000000000000000000000000007","sends":[{"ref":1,"client_msg_id":"m1","to":"bob","body":"hi","meta":{"a": [1, 2]},"seen_seq":3}]}}"#,
    r#"{"Plan":{"user":"bob","cursor":"252000000000000000","heads":true,"undelivered_after":null}}"#,
    r#"{"ReadRange":{"user":"bob","conversation_id":"alice~bob","from":{"Since":{"since":"5","at_most":9}},"max_messages":100,"max_bytes":65536}}"#,
    r#"{"PendingRow":["bob","alice~bob"]}"#,
    r#"{"Ack":{"user":"bob","session":null,"conversation_id":"alice~bob","seq":4,"again":false}}"#,
    r#"{"Read":{"user":"bob","session":null,"conversation_id":"alice~bob","seq":4,"again":true}}"#,
    r#"{"Settle":{"user":"bob","conversation_id":"alice~bob","row":3}}"#,
    r#"{"PayDebts":{"user":"bob","debts":[{"conversation_id":"alice~bob","first_unacked":{"Seq":2},"row":null}],"overdue":true}}"#,
    r#"{"Typing":["bob","alice~bob"]}"#,
    r#"{"Inbox":["bob",{"limit":20,"before":"x"}]}"#,
    r#"{"History":["bob",{"conversation_id":"alice~bob","before_seq":10}]}"#,
    r#"{"Status":["bob","alice~bob"]}"#,
    r#"{"Watch":[{"user_id":"bob","device":"phone","session_id":"00000000000000000000000000000007","gateway":"10.0.0.1:7000#a1","connected_at":1},["alice"]]}"#,
    r#"{"PresenceChanged":["bob",true]}"#,
    r#"{"EndSessions":[[{"user_id":"bob","device":"phone","session_id":"00000000000000000000000000000007","gateway":"10.0.0.1:7000#a1","connected_at":1}],{"code":"replaced","message":"connected again"}]}"#,
    r#"{"NotBefore":"bob"}"#,
    r#"{"Profile":"bob"}"#,
    r#"{"PutProfile":["bob",{"name":"Bob","avatar_url":null}]}"#,
    r#"{"TokenProfile":["bob",{"name":"Bob","avatar_url":null}]}"#,
    r#"{"UserCard":["alice","bob"]}"#,
    r#"{"SetBlock":["alice","bob",true]}"#,
    r#"{"Blocks":"alice"}"#,
    r#"{"PutPush":["bob","phone",{"provider":"apns","token":"ab01","content":"preview"}]}"#,
    r#"{"DeletePush":["bob","phone"]}"#,
    r#"{"PushDevices":"bob"}"#,
    r#"{"Mute":["bob",{"conversation_id":"alice~bob","until":9}]}"#,
    r#"{"Unmute":["bob","alice~bob"]}"#,
    r#"{"Mutes":"bob"}"#,
    r#"{"BeginUpload":["bob",{"name":"a.pdf","mime":"application/pdf","bytes":5,"sha256":"00"}]}"#,
    r#"{"CompleteUpload":["bob","000000000001000000000000000000ff",{"etags":["e"],"sha256":["00"]}]}"#,
    r#"{"Download":["bob","alice~bob","000000000001000000000000000000ff"]}"#,
    r#"{"HandOver":[{"user_id":"bob","device":"phone","session_id":"00000000000000000000000000000007","gateway":"10.0.0.1:7000#a1","connected_at":1},{"Wake":{"conversation_id":"alice~bob"}}]}"#,
    r#"{"Admin":{"Trace":["alice~bob",3]}}"#,
    r#"{"Admin":"Checkpoint"}"#,
];

#[test]
fn every_request_keeps_its_text() {
    for text in TEXTS {
        let request: ClusterRequest = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(serde_json::to_string(&request).unwrap(), *text);
    }
    // The error for an unknown kind lists all that there are.
    let error = serde_json::from_str::<ClusterRequest>(r#"{"?":0}"#).unwrap_err().to_string();
    let (_, expected) = error.split_once("expected one of ").unwrap();
    for kind in expected.split('`').skip(1).step_by(2) {
        let covered = TEXTS.iter().any(|text| text.starts_with(&format!("{{\"{kind}\":")));
        assert!(covered, "add the text of {kind} to the list");
    }
}

#[test]
fn a_request_may_have_fields_that_an_older_process_does_not_know() {
    let text = r#"{"Settle":{"user":"bob","conversation_id":"alice~bob","row":3,"later":true}}"#;
    let request: ClusterRequest = serde_json::from_str(text).unwrap();
    assert!(matches!(request, ClusterRequest::Settle(settle) if settle.row == 3));
}
