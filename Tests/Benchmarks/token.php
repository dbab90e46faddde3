<?php
/**
 * The contract on files: POST stores a token info under a unique id, GET fetches it. A peer of the benchmark.
 */
declare(strict_types=1);

/** A parameter without its tags; the request ends here if there is none. */
function parameter(string $name): string
{
    $value = $_POST[$name] ?? $_GET[$name] ?? null;
    if (!is_string($value)) {
        fail('30001', 'Invalid data input.');
    }
    return strip_tags($value);
}

/** The file of an id: a hash can be a file's name, whatever the id has in it. */
function tokenFile(string $uniqueId): string
{
    return $_SERVER['TOKEN_FOLDER'] . '/' . hash('sha256', $uniqueId);
}

/** Ends the request with an error. */
function fail(string $code, string $message): never
{
    answer(['status' => 'false', 'errorCode' => $code, 'errorMessage' => $message]);
}

/** Ends the request. */
function answer(array $members): never
{
    $body = json_encode($members);
    header('Content-Type: application/json');
    header('Cache-Control: no-store');
    // Without it nginx would have to send chunks.
    header('Content-Length: ' . strlen($body));
    exit($body);
}

switch ($_SERVER['REQUEST_METHOD']) {
    case 'POST':
        $file = tokenFile(parameter('unique_id'));
        if (file_put_contents($file, parameter('token_info'), LOCK_EX) === false) {
            fail('50001', 'Could not write file contents.');
        }
        answer(['status' => 'true']);
    case 'GET':
        $tokenInfo = @file_get_contents(tokenFile(parameter('unique_id')));
        if ($tokenInfo === false) {
            fail('50002', 'Could not read file contents or data empty.');
        }
        answer(['status' => 'true', 'token_info' => $tokenInfo]);
    default:
        fail('50003', 'Unsupported method: ' . $_SERVER['REQUEST_METHOD']);
}
